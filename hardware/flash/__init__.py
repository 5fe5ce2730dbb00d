"""Write an image to a card so that it comes up on the network by itself: `edge-board flash`.

command      arguments, order of steps          images      what an image is, told from its contents
targets      which device may be written        first_boot  PURE: settings -> files and options of the first boot
sources      unpacking, sizes, published hashes fat, ext    files in the card's file systems, nothing mounted
writer       bytes to the card and back         progress    rate and time left
"""
