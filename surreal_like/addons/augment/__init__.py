"""Changes of images that leave what is to be done the same, as a part of any plan."""
