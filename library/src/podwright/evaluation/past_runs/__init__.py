"""What earlier runs give an evaluation: cases, recorded answers, and the labels of persons."""
