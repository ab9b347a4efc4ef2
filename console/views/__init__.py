"""Pure views: from the control API's rows to rows, columns and words, the same for every face."""
