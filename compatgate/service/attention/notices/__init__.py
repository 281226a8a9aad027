"""Keep incidents that need attention, and post them to a webhook."""
