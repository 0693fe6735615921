#include "models/class_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace millrace::models {

std::vector<double> balanced_weights(const std::vector<std::int64_t>& counts) {
    const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    const auto present = static_cast<double>(std::ranges::count_if(counts, [](std::int64_t count) { return count > 0; }));
    std::vector<double> weights;
    weights.reserve(counts.size());
    for (const std::int64_t count : counts) weights.push_back(count > 0 ? all / (present * static_cast<double>(count)) : 1);
    return weights;
}

base::Result<std::vector<double>> class_weights(const base::Recipe& recipe, const data::Fields& fields) {
    constexpr const char* kKey = "train.class_weights";
    if (!recipe.has(kKey) || recipe.text(kKey) == "none") return std::vector<double>{};
    const data::Field* label = data::find_field(fields, "label");
    if (label == nullptr)
        return recipe.bad(kKey, fmt::format("{} = \"{}\" weighs classes, but the data has {}: a number is predicted; \"none\" "
                                            "would be right",
                                            kKey, recipe.text(kKey), data::text_of(fields)));
    const auto classes = static_cast<std::size_t>(label->limit);
    if (label->classes == nullptr || label->classes->counts.size() != classes) return std::vector<double>(classes, 1);
    return balanced_weights(label->classes->counts);
}

}  // namespace millrace::models
