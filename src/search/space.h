#pragma once
// The parameters that a study searches, as the table [space] of a study file gives them:
//
//     "optim.lr" = { log = [1e-5, 1e-1] }                        # uniform in the logarithm
//     "optim.weight_decay" = { log = [1e-6, 1e-1], or = 0 }      # the range, or one number outside of it
//     "model.dropout" = { uniform = [0.0, 0.5] }
//     "model.width" = { int = [4, 16], step = 4 }                # 4, 8, 12, 16
//     "train.batch" = { choice = [32, 64, 128] }                 # numbers, texts, booleans; no order among them
//
// A value is a double: the number itself, or the index of a choice (what Optuna's storage keeps, too). Samplers work in the
// unit cube, one coordinate in [0, 1] for each parameter.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/recipe_toml.h"
#include "base/result.h"

namespace millrace::search {

enum class ParameterKind { uniform, log, integer, choice };

struct Parameter {
    std::string name;  ///< the recipe's key
    ParameterKind kind = ParameterKind::uniform;
    double low = 0;  ///< of ranges, both ends included
    double high = 1;
    double step = 1;                       ///< of integers
    std::optional<double> alternative;     ///< `or`: a number outside of the range
    std::vector<base::RawScalar> choices;  ///< of a choice
    std::string place;                     ///< "study.toml:12"

    /// How many values the range or the choice has, without the alternative; 0 when it is continuous.
    [[nodiscard]] int64_t cells() const;
    [[nodiscard]] bool is_alternative(double value) const { return alternative && *alternative == value; }

    /// A value of the range or choice to [0, 1] and back; not for the alternative. A discrete value is at the middle of its cell.
    [[nodiscard]] double range_to_unit(double value) const;
    [[nodiscard]] double range_from_unit(double unit) const;
    /// The same with the alternative, which has the lowest quarter of [0, 1].
    [[nodiscard]] double to_unit(double value) const;
    [[nodiscard]] double from_unit(double unit) const;

    /// Whether the value is one that this parameter can have.
    [[nodiscard]] bool holds(double value) const;
    /// The value as text: "0.001", "64", "relu".
    [[nodiscard]] std::string text(double value) const;
};

/// One value for each parameter of a space, in its order. Equal configurations are equal doubles; a second trial of one is a
/// replicate.
using Configuration = std::vector<double>;

/// The part of [0, 1] that stands for the alternative of a parameter that has one.
inline constexpr double kAlternativeShare = 0.25;

struct Space {
    std::vector<Parameter> parameters;  ///< in the order of their lines

    [[nodiscard]] size_t size() const { return parameters.size(); }
    /// One value for each parameter, which it may have.
    [[nodiscard]] bool holds(const Configuration& configuration) const;
    [[nodiscard]] std::vector<double> to_unit(const Configuration& configuration) const;
    [[nodiscard]] Configuration from_unit(std::span<const double> unit) const;
    /// "optim.lr=0.001" for each parameter: arguments of --set that base::read_flags reads back.
    [[nodiscard]] std::vector<std::string> settings(const Configuration& configuration) const;
};

/// Takes the entries below `table` of a study file (as base::read_toml gives them) and ignores the others. Refuses with the
/// place: an empty space, a parameter without or with two kinds, unknown words, empty or infinite ranges, logarithms of
/// numbers <= 0, steps that do not divide the range, empty or repeated choices, an alternative inside of the range.
base::Result<Space> parse_space(std::span<const base::RawEntry> entries, const std::string& table = "space");

}  // namespace millrace::search
