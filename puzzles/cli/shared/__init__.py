"""Parts that several commands share: option types, option groups, files of schedules, judged runs."""
