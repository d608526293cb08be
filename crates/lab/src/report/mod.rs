//! What a run of the lab leaves behind, for people and programs.
