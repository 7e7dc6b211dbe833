default link 1 Gb/s delay 5 us
hosts 8 speed 45 images/s
