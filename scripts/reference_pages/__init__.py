"""Write the pages of docs/reference that the program itself describes."""
