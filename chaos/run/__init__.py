"""Running a plan: phases, triggers, the journal being written."""
