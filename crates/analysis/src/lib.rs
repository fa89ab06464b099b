//! Pure analysis: kernel events to requests, ideal, stages, statistics.
