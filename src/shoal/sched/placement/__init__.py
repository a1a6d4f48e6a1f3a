"""Where tasks go: the weather of sites; the question of a plan and its answer. The program itself is in sched/vector/."""
