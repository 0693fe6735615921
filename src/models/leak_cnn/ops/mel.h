#pragma once
// Mel bands (data/sound/mel.h) as an operator. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

/// mel_bands. y = 20 log10(max(m, 1e-10)) for the 64 bands m of each window of 512 samples. Computed in stat: a bin's
/// error is about 1e-7 of the largest bin, so that f32 does not see bands 120 dB below the loudest.
/// Slots: x stat [K,1,B,512], y stat or f16 [K,1,B,64] (row strides free).
struct MelBandsParams {};
namespace mel_bands {
enum Slot { x, y, slots };
extern const OpDef kDef;
}  // namespace mel_bands

}  // namespace millrace::ops
