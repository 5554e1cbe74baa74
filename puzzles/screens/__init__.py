"""What a player sees: verdicts, tables, profiles and plans in a terminal and as HTML, and the words after a pass."""
