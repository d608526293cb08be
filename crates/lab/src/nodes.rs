//! The machines of an experiment, as emulated nodes over real sockets.
