"""Keep incidents that need attention, and notify subscribers by webhook, e-mail or chat."""
