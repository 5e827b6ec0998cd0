"""Next-ball prediction in T20 cricket: match files, features, a graph network and reports."""
