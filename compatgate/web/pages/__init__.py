"""Answer the pages below ``/ui``, one module for each thing that is shown."""
