"""What an image holds, and what is put into it: partition tables, FAT, ext4."""
