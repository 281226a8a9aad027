"""Keep incidents that need attention, and tell subscribers of them: webhooks, e-mail, chat."""
