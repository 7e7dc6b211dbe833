default link 1 Gb/s delay 5 us
hosts 7 speed 4500 images/s
hosts 1 speed 4500 images/s link 500 Mb/s
