#include "models/collective/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace::models {
namespace {

std::int32_t floor_to_int(double value) { return static_cast<std::int32_t>(std::floor(value)); }

base::Status check_member(const char* member, const MemberShape& shape, bool varies) {
    if (shape.hidden.size() < 2)
        return base::Error{
            fmt::format("model.{}_hidden has {} widths; at least two hidden layers would be right", member, shape.hidden.size())};
    for (std::int32_t width : shape.hidden)
        if (width < (varies ? 2 : 1))
            return base::Error{fmt::format("model.{}_hidden holds the width {}, which is too small", member, width)};
    if (shape.output < 1)
        return base::Error{fmt::format("model.{}_output is {}; at least 1 would be right", member, shape.output)};
    return base::ok();
}

base::Status check_rate(const char* key, double rate) {
    if (rate >= 0 && rate < 1) return base::ok();
    return base::Error{fmt::format("model.{} is {}; a rate in [0, 1) would be right", key, rate)};
}

base::Status check_positive(const char* key, double value) {
    if (std::isfinite(value) && value > 0) return base::ok();
    return base::Error{fmt::format("model.{} is {}; a finite number above 0 would be right", key, value)};
}

}  // namespace

MemberShape varied(const MemberShape& base, std::int32_t index) {
    MemberShape shape = base;
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
    return std::max(floor_to_int(std::clamp(rule, 64, 2048) * collective_compression), 2 * classes);
}

std::int32_t CollectiveConfig::head_hidden() const { return std::max(floor_to_int(head_input() * hidden_scale), 2 * classes); }

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
    if (config.features < 1 || config.classes < 2)
        return base::Error{fmt::format("the data has {} features and {} classes; at least 1 and 2 would be right",
                                       config.features, config.classes)};
    if (config.experts < 1 || config.analysts < 1)
        return base::Error{fmt::format(
            "the model has {} experts and {} analysts; at least one of each would be right (model.n_total, model.n_experts)",
            config.experts, config.analysts)};
    MILLRACE_TRY(check_member("expert", config.expert, config.vary_experts));
    MILLRACE_TRY(check_member("analyst", config.analyst, config.vary_analysts));
    MILLRACE_TRY(check_positive("expert_compression", config.expert_compression));
    MILLRACE_TRY(check_positive("collective_compression", config.collective_compression));
    MILLRACE_TRY(check_positive("hidden_scale", config.hidden_scale));
    MILLRACE_TRY(check_positive("diversity_temperature", config.diversity_temperature));
    MILLRACE_TRY(check_rate("member_dropout", config.member_dropout));
    MILLRACE_TRY(check_rate("encoder_dropout", config.encoder_dropout));
    MILLRACE_TRY(check_rate("head_dropout", config.head_dropout));
    if (!std::isfinite(config.diversity_weight) || config.diversity_weight < 0)
        return base::Error{
            fmt::format("model.diversity_weight is {}; a finite number of at least 0 would be right", config.diversity_weight)};
    if (config.summary_width() < 1)
        return base::Error{fmt::format("model.expert_compression is {}, which leaves no column of the {} the experts give",
                                       config.expert_compression, config.opinions_width())};
    return base::ok();
}

}  // namespace millrace::models
