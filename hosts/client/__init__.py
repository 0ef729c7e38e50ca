"""The application's API: engines, run handles, and bulk actions on many runs."""
