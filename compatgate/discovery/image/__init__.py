"""Read what images in registries hold, without a container engine and without unpacking.

`read.read_image` asks a registry for manifest and config, reads what the variables and labels of
published images tell, and then streams the layers that the config does not account for, from the
top down. docs/how-to/images.md says what is read, and docs/decisions/006-reading-images.md why so.
"""
