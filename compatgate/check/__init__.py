"""Run the command ``check``, from options and files to a verdict in any format."""
