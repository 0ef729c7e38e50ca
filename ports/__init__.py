"""The ground floor: the records that cross a boundary, and the ports through which everything outside is reached."""
