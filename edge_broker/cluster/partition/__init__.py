"""One partition as a member has it: leader, follower, election, repair."""
