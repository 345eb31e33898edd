-- band: score arithmetic, as in score.py
local BAND_WIDTH = 4398046511104
local MAX_LANES = 2047

local function band_floor(lane)
  return -(lane + 1) * BAND_WIDTH
end

local function is_rank(rank)
  return rank >= 0 and rank < BAND_WIDTH
end
