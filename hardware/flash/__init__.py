"""Write an image to a card so that it comes up on the network by itself: `edge-board flash`.

command      arguments, order of steps          contents    PURE: a card's image, or what else, by its first megabyte
settings     PURE: what a board may be told     tables      PURE: partition tables, marks of file systems
countries    ISO 3166                           images      which system an image holds, told from its contents
targets      which device may be written        recognition what becomes of an image: said or refused before the write
sources      unpacking, sizes, published hashes first_boot  PURE: settings -> files and options of the first boot, with
writer       bytes to the card and back                     cloud_init, networks, firmware
progress     rate and time left                 fat, ext    files in the card's file systems, nothing mounted
"""
