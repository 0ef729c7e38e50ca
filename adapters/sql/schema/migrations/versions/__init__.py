"""One file per migration. A released migration is never edited."""
