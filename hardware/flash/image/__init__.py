"""The content of an image, and the files to write into it: partition tables, FAT, ext4."""
