"""The process that takes runs from the queue and drives them on its staging hosts."""
