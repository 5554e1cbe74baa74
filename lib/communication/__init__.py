"""How ranks meet, in the run and in the record: groups, collectives, mailboxes, lanes."""
