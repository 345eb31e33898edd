"""The parts of `tideq bench`: processes that submit and run tasks, the results they measure, how these are shown."""
