#include "models/k1/k1.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/k1/ops/nodes.h"
#include "nn/pointwise.h"
#include "tape/record.h"

namespace millrace::models {
namespace {

/// The group of every node in its level.
std::vector<std::int32_t> places_of(const std::vector<std::vector<std::int32_t>>& levels, std::int32_t nodes) {
    std::vector<std::int32_t> place(static_cast<std::size_t>(nodes));
    for (const std::vector<std::int32_t>& level : levels)
        for (std::size_t i = 0; i < level.size(); ++i) place[static_cast<std::size_t>(level[i])] = static_cast<std::int32_t>(i);
    return place;
}

/// y [K,1,B,groups*cols] from x [K,1,B,N*cols]: group m is the sum of weight * group n of x over the terms {m, n, weight}, which
/// are in ascending order of m.
tape::Value mix_groups(tape::Builder& builder, const tape::Value& x, std::int32_t cols, std::int32_t groups,
                       const std::vector<ops::MixTerm>& terms, const std::string& name) {
    const tape::Value y = builder.activation(x.view.rows, groups * cols, name, builder.training() && x.needs_gradient);
    builder.append(tape::record_of(&ops::mix_groups::kDef, ops::MixParams{cols, terms}, name, {x, y}));
    ops::MixParams back{cols, {}};
    for (const ops::MixTerm& term : terms) back.terms.push_back({term.in, term.out, term.weight});
    std::ranges::stable_sort(back.terms, {}, &ops::MixTerm::out);
    builder.on_gradient(y, [&builder, x, back, name](const tensor::View& dy) {
        builder.append(tape::record_of(&ops::mix_groups::kDef, back, name, {dy, builder.gradient_target(x)}));
    });
    return y;
}

}  // namespace

base::Status K1::declare_body(tape::Store& store) {
    if (config_.policy.size() != 1 && config_.policy.size() != static_cast<std::size_t>(store.members()))
        return base::Error{fmt::format("model.policy has {} entries for {} members; one, or one of each would be right",
                                       config_.policy.size(), store.members())};
    const LanguageConfig& c = language();
    levels_ = config_.tree.levels();
    layers_.clear();
    for (const std::vector<std::int32_t>& level : levels_) {
        std::vector<std::string> names, groups;
        for (const std::int32_t node : level) {
            names.push_back(fmt::format("nodes.{}", node));
            groups.push_back(group_of(node));
        }
        layers_.emplace_back(store, names,
                             nn::TransformerOptions{c.width, c.heads, c.inner, true, c.dropout, false, std::move(groups)});
    }
    // A run that starts from the weights of another counts its own steps.
    const auto counts = [&](const char* name, std::int32_t columns) {
        std::vector<std::string> names;
        for (std::int32_t node = 0; node < config_.tree.nodes(); ++node) names.push_back(prefix_of(node) + name);
        return store.add_vector(std::move(names), columns, tape::Init::value(0), tape::kSettings);
    };
    statistics_ = counts("statistics", ops::kLabelColumn + 2 * config_.labels.count);
    carries_ = counts("carries", 1 + 2 * config_.labels.count);
    return base::ok();
}

Outputs K1::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    if (part == data::Part::train) samples_ = source.samples(part);
    return LanguageModel::build(builder, source, part, rows);
}

tape::Value K1::body(tape::Builder& builder, const tape::Value& x, const nn::Sequences& sequences) const {
    const std::int32_t width = language().width;
    const auto at = [](std::size_t i) { return static_cast<std::int32_t>(i); };
    if (config_.topology == Topology::level) {
        tape::Value h = x;
        for (std::size_t l = 0; l < levels_.size(); ++l) {
            const std::size_t count = levels_[l].size();
            std::vector<ops::MixTerm> spread, mean;
            double sum = 0;
            for (const std::int32_t node : levels_[l]) sum += config_.tree.weight_of(node);
            for (std::size_t i = 0; i < count; ++i) {
                spread.push_back({at(i), 0, 1});
                mean.push_back({0, at(i), static_cast<float>(config_.tree.weight_of(levels_[l][i])) / static_cast<float>(sum)});
            }
            if (count > 1) h = mix_groups(builder, h, width, at(count), spread, fmt::format("level.{}.in", l));
            h = layers_[l].forward(builder, h, sequences);
            if (count > 1) h = mix_groups(builder, h, width, 1, mean, fmt::format("level.{}.mean", l));
        }
        return h;
    }
    const std::vector<double> shares = config_.tree.shares();
    const std::vector<std::int32_t> place = places_of(levels_, config_.tree.nodes());
    std::vector<tape::Value> outputs;
    for (std::size_t l = 0; l < levels_.size(); ++l) {
        tape::Value in = l == 0 ? x : outputs.back();
        if (l > 0) {
            std::vector<ops::MixTerm> terms;
            for (std::size_t i = 0; i < levels_[l].size(); ++i) {
                const std::int32_t above = config_.tree.parent[static_cast<std::size_t>(levels_[l][i])];
                terms.push_back({at(i), place[static_cast<std::size_t>(above)], 1});
            }
            in = mix_groups(builder, in, width, at(levels_[l].size()), terms, fmt::format("level.{}.in", l));
        }
        outputs.push_back(layers_[l].forward(builder, in, sequences));
    }
    // Leaves of all levels; a regular tree has them in the last alone.
    tape::Value sum;
    for (std::size_t l = 0; l < levels_.size(); ++l) {
        std::vector<ops::MixTerm> terms;
        for (std::size_t i = 0; i < levels_[l].size(); ++i)
            if (const double share = shares[static_cast<std::size_t>(levels_[l][i])]; share > 0)
                terms.push_back({0, at(i), static_cast<float>(share)});
        if (terms.empty()) continue;
        const bool whole = levels_[l].size() == 1 && terms.front().weight == 1;
        const tape::Value part =
            whole ? outputs[l] : mix_groups(builder, outputs[l], width, 1, terms, fmt::format("level.{}.mean", l));
        sum = sum.view.present() ? nn::add(builder, sum, part, fmt::format("level.{}.sum", l)) : part;
    }
    return sum;
}

void K1::append_before_update(tape::Builder& builder) {
    const tape::Store& store = builder.store();
    ops::ChooseParams params;
    params.policy = config_.policy;
    params.count = config_.count;
    params.zero_grad = config_.zero_grad;
    params.op_number = builder.next_op_number();
    params.cooldown = config_.cooldown;
    params.explore = config_.explore;
    params.parent = config_.tree.parent;
    params.labels = config_.labels;
    params.labels.samples = static_cast<std::uint32_t>(samples_);
    for (std::int32_t node = 0; node < config_.tree.nodes(); ++node) {
        const auto found = std::ranges::find(store.groups(), group_of(node), &tape::ParameterGroup::name);
        const auto id = static_cast<std::int32_t>(found - store.groups().begin());
        params.group.push_back(id);
        for (const tape::Parameter& p : store.parameters())
            for (std::size_t i = 0; i < p.group_ids.size() && !p.fixed; ++i) {
                if (p.group_ids[i] != id) continue;
                const std::int64_t size = std::int64_t{p.rows} * p.cols, first = p.offset + static_cast<std::int64_t>(i) * size;
                for (std::int64_t from = first; from < first + size; from += ops::kMostPiece)
                    params.pieces.push_back({static_cast<std::int32_t>(from),
                                             static_cast<std::int32_t>(std::min(first + size, from + ops::kMostPiece)), node});
            }
    }
    builder.append(tape::record_of(
        &ops::choose_nodes::kDef, params, "choose",
        {store.gradient_arena(), store.state(), store.group_table(), store.parameter(statistics_), store.parameter(carries_)}));
}

std::vector<std::int32_t> K1::cached_widths() const {
    std::vector<std::int32_t> widths;
    for (const std::vector<std::int32_t>& level : config_.tree.levels())
        widths.push_back(static_cast<std::int32_t>(level.size()) * language().width);
    return widths;
}

std::string K1::description() const {
    const LanguageConfig& c = language();
    return fmt::format("{} nodes in {} levels, width {}, {} heads, {} inner; vocabulary of {}, windows of {} tokens",
                       config_.tree.nodes(), config_.tree.levels().size(), c.width, c.heads, c.inner, c.vocabulary, c.length);
}

}  // namespace millrace::models
