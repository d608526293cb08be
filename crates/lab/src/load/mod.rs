//! The load generator: the traffic of an experiment over real sockets.
