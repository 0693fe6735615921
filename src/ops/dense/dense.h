#pragma once
// Linear layers with norm, activation and dropout, their gradients, sums over rows. Conventions: ops/op.h.

#include "ops/activation.h"
#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

enum class Norm : std::uint8_t { none, batch_train, batch_eval };

/// dense_forward. z = x w^T + bias; then per Norm: none: u = z. batch_train: mean and biased variance of z over the B rows (per member,
/// group and column), xhat = (z - mean) * inv_std with inv_std = 1 / sqrt(var + eps), u = gamma * xhat + beta; running_mean and
/// running_var (unbiased, B / (B - 1); B = 1 keeps the biased value) move by `momentum`, columns with a mean or variance that is not
/// finite excepted: a dropped step must not poison evaluation. batch_eval: u = gamma * (z - running_mean) / sqrt(running_var + eps) +
/// beta. Then a = act(u), y = dropout(a) when training and p > 0.
/// Slots: x real [K,G,B,In]; w real [K,G,Out,In]; bias stat [K,G,1,Out] optional; gamma, beta, running_mean, running_var stat [K,G,1,Out]
/// with a norm; saved real [K,G,B,Out] (training, when norm or activation is present): xhat with batch_train, else u; inv_std stat
/// [K,G,1,Out] with batch_train; state (with dropout); y real [K,G,B,Out], or stat where it is z. Where `saved` is rounded to real, u is
/// computed from the rounded value so that the backward pass sees the same sign.
struct DenseParams {
    Norm norm = Norm::none;
    Activation activation = Activation::none;
    float dropout = 0;
    float eps = 1e-5f, momentum = 0.1f;
    std::uint32_t op_number = 0;
    friend bool operator==(const DenseParams&, const DenseParams&) = default;
};
namespace dense_forward { enum Slot { x, w, bias, gamma, beta, running_mean, running_var, saved, inv_std, state, y, slots }; extern const OpDef kDef; }

/// dense_backward. From dy to dz, the gradient before the norm: dropout, activation, norm in reverse. With batch_train:
/// du = dy through dropout and activation; dgamma (+) = sum_b du * xhat, dbeta (+) = sum_b du, dz = gamma * inv_std / B * (B du - sum du
/// - xhat * sum(du * xhat)); the bias gradient is zero by construction and is not written. With none: dz = du, dbias (+) = sum_b dz.
/// Slots: dy real, saved, gamma, beta, inv_std, state, dz real [K,G,B,Out] (may be the memory of dy), dgamma, dbeta, dbias stat [K,G,1,Out].
/// `batch_eval` never appears. Sums run over rows in ascending order of blocks fixed by the shape alone.
namespace dense_backward { enum Slot { dy, saved, gamma, beta, inv_std, state, dz, dgamma, dbeta, dbias, slots }; extern const OpDef kDef; }

/// Batch statistics in two records: moments of chunks of kMomentRows rows (at least one chunk, the last may have fewer rows), then every row with those of
/// all chunks. dense_forward and dense_backward with batch_train are these joined (rewrite batch_statistics).
/// batch_moments. z stat [K,G,B,Out]; moments stat [K,G,chunks,2 Out]: of each column the mean, behind them the sums of squared distances from it.
/// batch_apply. What dense_forward does behind its product, with norm batch_train: z is that product without the bias, which moves running_mean alone.
/// batch_moments_backward. sums stat [K,G,chunks,2 Out]: of du over the chunk's rows, then of du * xhat.
/// batch_apply_backward. dense_backward with those sums. Other slots than theirs have the shapes and the places that the joined record gives them.
constexpr std::int32_t kMomentRows = 64;
constexpr std::int32_t moment_chunks(std::int32_t rows) { return rows <= kMomentRows ? 1 : (rows + kMomentRows - 1) / kMomentRows; }
struct BatchMomentsParams {};
namespace batch_moments { enum Slot { z, moments, slots }; extern const OpDef kDef; }
namespace batch_apply { enum Slot { z, moments, bias, gamma, beta, running_mean, running_var, saved, inv_std, state, y, slots }; extern const OpDef kDef; }
namespace batch_moments_backward { enum Slot { dy, saved, gamma, beta, sums, state, slots }; extern const OpDef kDef; }
namespace batch_apply_backward { enum Slot { dy, saved, gamma, beta, inv_std, state, dz, dgamma, dbeta, sums, slots }; extern const OpDef kDef; }

/// linear_dgrad. dx (+) = dz w. dz real [K,G,B,Out], w real [K,G,Out,In] (In may be a column window of the layer's weight), dx real or stat [K,G,B,C],
/// C >= In: further columns become 0, or stay when adding.
/// linear_wgrad. dw (+) = dz^T x. dw stat [K,G,Out,In], x real [K,G,B,C], C >= In: further columns do not matter. dbias (+), optional, stat [K,G,1,Out]:
/// the sums of dz over its rows.
struct LinearGradParams {};
namespace linear_dgrad { enum Slot { dz, w, dx, slots }; extern const OpDef kDef; }
namespace linear_wgrad { enum Slot { dz, x, dw, dbias, slots }; extern const OpDef kDef; }

/// column_sum. out (+) [K,G,1,C'] stat = sum over rows of columns [from[0], from[0] + C') of in [K,G,R,C] real or stat, in an order fixed by the shape of in.
/// second and third (+), optional: the same of columns from from[1] and from[2] on. The three do not overlap in memory.
struct ColumnSumParams { std::int32_t from[3] = {}; };
namespace column_sum { enum Slot { in, out, second, third, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
