"""Operations that several handlers share, as functions of the broker."""
