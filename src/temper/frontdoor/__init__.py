"""The doors: the torch.compile backend, temper.compile, temper.profile, tt_profile, stats."""
