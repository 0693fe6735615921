// What the nodes of a changed tree take over from those before.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/philox.h"
#include "models/k1/structure.h"

namespace millrace::models {
namespace {

using Arena = tape::Store::Arena;
using Values = std::vector<float>;

struct Tensor {
    tape::ParameterId id = tape::kNoParameter;
    int matrix = 0;
};
std::map<std::string, Tensor> tensors_of(const tape::Store& store) {
    std::map<std::string, Tensor> all;
    for (std::size_t id = 0; id < store.parameters().size(); ++id)
        for (int matrix = 0; matrix < store.parameters()[id].matrices; ++matrix)
            all[store.parameters()[id].names[static_cast<std::size_t>(matrix)]] = {static_cast<tape::ParameterId>(id), matrix};
    return all;
}

/// The node whose tensor this is; none: it belongs to no node.
std::optional<std::int32_t> node_of(const std::string& name, std::int32_t nodes) {
    for (std::int32_t node = 0; node < nodes; ++node)
        if (name.starts_with(K1::prefix_of(node))) return node;
    return std::nullopt;
}

void add_noise(Values& values, double noise, const ops::MemberState& state, std::uint32_t stream) {
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    const auto scale = static_cast<float>(noise * std::sqrt(squares / static_cast<double>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += scale * base::random_normal(state.seed, state.step, 0, stream, i);
}

/// Where a tensor of the changed tree comes from.
struct Source {
    struct Part {
        std::string name;
        double share;
    };
    std::vector<Part> parts;
    bool grown = false;
    [[nodiscard]] bool begins_anew() const { return grown || parts.size() > 1; }
};

Source source_of(const std::string& name, const Reshaped& change) {
    const std::optional<std::int32_t> node = node_of(name, change.tree.nodes());
    if (!node) return {{{name, 1}}, false};
    Source source{{}, *node == change.grown};
    for (const Origin& origin : change.origins[static_cast<std::size_t>(*node)])
        source.parts.push_back({K1::prefix_of(origin.node) + name.substr(K1::prefix_of(*node).size()), origin.share});
    return source;
}

/// The mean of the parts; of a single one its very bits.
Values mean_of(const Source& source, const std::map<std::string, Tensor>& tensors, tape::Store& store, Arena arena) {
    Values mean;
    for (const auto& [name, share] : source.parts) {
        const Tensor& tensor = tensors.at(name);
        Values values = store.read_parameter(tensor.id, tensor.matrix, 0, arena);
        if (source.parts.size() == 1) return values;
        mean.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) mean[i] += static_cast<float>(share * double{values[i]});
    }
    return mean;
}

void transfer_groups(const Reshaped& change, tape::Store& from, tape::Store& to) {
    const std::vector<ops::GroupState> before = from.read_groups();
    std::vector<ops::GroupState> after = to.read_groups();
    const auto state_of = [&](const std::string& name) -> const ops::GroupState& {
        const auto found = std::ranges::find(from.groups(), name, &tape::ParameterGroup::name);
        return before[static_cast<std::size_t>(found - from.groups().begin())];
    };
    for (std::size_t g = 0; g < after.size(); ++g) {
        const std::string& name = to.groups()[g].name;
        std::int32_t node = 0;
        while (node < change.tree.nodes() && K1::group_of(node) != name) ++node;
        if (node == change.tree.nodes()) {
            after[g] = state_of(name);
            continue;
        }
        const std::vector<Origin>& origins = change.origins[static_cast<std::size_t>(node)];
        after[g] = state_of(K1::group_of(origins.front().node));
        for (const Origin& origin : origins) {
            const ops::GroupState& other = state_of(K1::group_of(origin.node));
            after[g].applied = std::max(after[g].applied, other.applied);
            after[g].last_applied = std::max(after[g].last_applied, other.last_applied);
        }
        if (node == change.grown) after[g].applied = after[g].last_applied = 0;
    }
    to.write_groups(after);
}

}  // namespace

void transfer_nodes(const Reshaped& change, double noise, tape::Store& from, tape::Store& to) {
    const std::map<std::string, Tensor> before = tensors_of(from);
    const ops::MemberState state = from.read_states().front();
    std::uint32_t stream = 0;
    for (const auto& [name, tensor] : tensors_of(to)) {
        const Source source = source_of(name, change);
        const bool fixed = to.parameters()[static_cast<std::size_t>(tensor.id)].fixed;
        ++stream;
        Values values = mean_of(source, before, from, Arena::value);
        if (fixed && source.begins_anew()) std::ranges::fill(values, 0.0f);
        if (!fixed && source.grown) add_noise(values, noise, state, stream);
        to.write_parameter(tensor.id, tensor.matrix, 0, values);
        for (const auto& [arena, present] : {std::pair{Arena::first_moment, to.first_moment().present()},
                                             std::pair{Arena::second_moment, to.second_moment().present()}}) {
            if (fixed || !present) continue;
            values = mean_of(source, before, from, arena);
            if (source.grown) std::ranges::fill(values, 0.0f);
            to.write_parameter(tensor.id, tensor.matrix, 0, values, arena);
        }
    }
    to.refresh_copies();
    transfer_groups(change, from, to);
}

}  // namespace millrace::models
