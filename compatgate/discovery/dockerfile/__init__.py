"""Read what a Dockerfile says of the image that it builds, before it is built."""
