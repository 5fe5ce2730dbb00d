"""Contents of an image, and the files that are put into it: partition tables, FAT, ext4."""
