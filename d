default link 1 Gb/s delay 5 us
hosts 2 speed 45 images/s
hosts 6 speed 45 images/s link 200 Mb/s
