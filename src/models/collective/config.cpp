// Widths that follow from the recipe, and what is refused.
#include "models/collective/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace::models {
namespace {

std::int32_t floor_to_int(double value) { return static_cast<std::int32_t>(std::floor(value)); }

/// Widths that vary are cut by a fifth.
base::Status check_unit(const char* role, const UnitShape& shape, bool varies) {
    for (std::int32_t width : shape.hidden)
        if (varies && width < 2)
            return base::Error{fmt::format("model.{}_hidden holds the width {}, which is too small", role, width)};
    return base::ok();
}

}  // namespace

UnitShape varied(const UnitShape& base, std::int32_t index) {
    UnitShape shape = base;
    switch (index % 4) {
        case 1:
            for (std::int32_t& width : shape.hidden) width = floor_to_int(width * 1.25);
            break;
        case 2: shape.hidden = {base.hidden.front(), (base.hidden.front() + base.hidden.back()) / 2, base.hidden.back()}; break;
        case 3:
            for (std::int32_t& width : shape.hidden) width = floor_to_int(width * 0.8);
            break;
        default: break;
    }
    return shape;
}

std::int32_t CollectiveConfig::summary_width() const { return floor_to_int(opinions_width() * expert_compression); }

std::int32_t CollectiveConfig::code_width() const {
    if (code > 0) return code;
    const std::int32_t rule = floor_to_int(analyst.output * (1 + std::log2(analysts)));
    return std::max(floor_to_int(std::clamp(rule, 64, 2048) * collective_compression), 2 * task.outputs);
}

std::int32_t CollectiveConfig::head_hidden() const {
    return std::max(floor_to_int(head_input() * hidden_scale), 2 * task.outputs);
}

std::int32_t encoder_hidden(std::int32_t in, std::int32_t out) {
    const std::int64_t product = std::int64_t{in} * out;
    auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(product)));
    while (root * root > product) --root;
    while ((root + 1) * (root + 1) <= product) ++root;
    return static_cast<std::int32_t>(root);
}

std::int32_t expert_count(std::int32_t total, double ratio, Revision revision) {
    const auto rounded = static_cast<std::int32_t>(std::nearbyint(total * ratio));
    return std::min(std::max(rounded, revision == Revision::r2 ? 2 : 1), total - 1);
}

base::Status validate(const CollectiveConfig& config) {
    const Task& task = config.task;
    if (task.input.width < 1 || (!task.regression && task.outputs < 2))
        return base::Error{fmt::format("the data has {} features and {} classes; at least 1 and 2 would be right",
                                       task.input.width, task.outputs)};
    MILLRACE_TRY(check_unit("expert", config.expert, config.vary_experts));
    MILLRACE_TRY(check_unit("analyst", config.analyst, config.vary_analysts));
    if (config.summary_width() < 1)
        return base::Error{fmt::format("model.expert_compression is {}, which leaves no column of the {} the experts give",
                                       config.expert_compression, config.opinions_width())};
    return base::ok();
}

}  // namespace millrace::models
