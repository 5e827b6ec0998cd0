"""What each snake sees: observation vectors computed from the boards."""
