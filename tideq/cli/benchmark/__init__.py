"""The parts of `tideq bench`: processes that submit and run tasks, their figures, and how these are printed."""
