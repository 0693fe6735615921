#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace millrace::models {
namespace {

using tape::Parameter;
using tape::ParameterId;
using Arena = tape::Store::Arena;

constexpr std::string_view kRunningMean = "running_mean";

std::vector<std::int64_t> shape_of(const Parameter& p) {
    if (p.vector) return {p.cols};
    if (p.axes.empty()) return {p.rows, p.cols};
    std::vector<std::int64_t> shape{p.rows};
    shape.insert(shape.end(), p.axes.begin(), p.axes.end());
    return shape;
}

/// "layer.norm.running_mean" is "layer.norm.num_batches_tracked"; empty for any other name.
std::string batches_name(const std::string& name) {
    if (!name.ends_with(kRunningMean)) return {};
    return name.substr(0, name.size() - kRunningMean.size()) + "num_batches_tracked";
}

/// The optimizer's tensors of a parameter: where they live and what PyTorch calls them.
struct Moment {
    Arena arena;
    const char* suffix;
};
std::vector<Moment> moments_of(const tape::Store& store) {
    if (store.second_moment().present()) return {{Arena::first_moment, ".exp_avg"}, {Arena::second_moment, ".exp_avg_sq"}};
    if (store.first_moment().present()) return {{Arena::first_moment, ".momentum_buffer"}};
    return {};
}

template <class Visit>
void for_each_tensor(const tape::Store& store, const Visit& visit) {
    for (std::size_t id = 0; id < store.parameters().size(); ++id) {
        const Parameter& p = store.parameters()[id];
        for (int group = 0; group < p.groups; ++group)
            visit(p, static_cast<ParameterId>(id), group, p.names[static_cast<std::size_t>(group)]);
    }
}

/// Refuses tensors that the model does not have: a larger model's file would otherwise load into a smaller one.
base::Status check_names(const io::SafetensorsFile& file, const std::set<std::string>& wanted) {
    for (const io::TensorView& tensor : file.tensors())
        if (!wanted.contains(tensor.name))
            return base::Error{fmt::format("tensor {} does not belong to this model; the file is of another model", tensor.name),
                               file.place()};
    return base::ok();
}

base::Status load_tensor(tape::Store& store, const io::SafetensorsFile& file, const std::string& name, const Parameter& p,
                         ParameterId id, int group, int member, Arena arena) {
    std::vector<float> values(static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols));
    MILLRACE_TRY(file.copy_floats(name, shape_of(p), values));
    store.write_parameter(id, group, member, values, arena);
    return base::ok();
}

base::Status check_attachment(const io::SafetensorsFile& file, const Attachment& attachment) {
    const io::TensorView* tensor = file.find(attachment.name);
    if (tensor == nullptr || tensor->type != io::ElementType::kU8 ||
        std::string_view(reinterpret_cast<const char*>(tensor->data), tensor->bytes) != attachment.bytes)
        return base::Error{fmt::format("tensor {} is {}; the file is of another model", attachment.name,
                                       tensor == nullptr ? "missing" : "another"),
                           file.place()};
    return base::ok();
}

base::Status load_member(tape::Store& store, const io::LoadedMember& loaded, int member, bool with_optimizer,
                         const std::vector<Attachment>& attachments) {
    std::set<std::string> model_names, optimizer_names;
    for (const Attachment& attachment : attachments) {
        model_names.insert(attachment.name);
        MILLRACE_TRY(check_attachment(loaded.model, attachment));
    }
    const std::vector<Moment> moments = with_optimizer ? moments_of(store) : std::vector<Moment>{};
    if (!moments.empty() && !loaded.optimizer)
        return base::Error{"the checkpoint has no optimizer state, so training cannot go on from it", loaded.model.place()};
    base::Status status = base::ok();
    for_each_tensor(store, [&](const Parameter& p, ParameterId id, int group, const std::string& name) {
        model_names.insert(name);
        if (const std::string batches = batches_name(name); p.fixed && !batches.empty()) model_names.insert(batches);
        if (status.ok()) status = load_tensor(store, loaded.model, name, p, id, group, member, Arena::value);
        if (p.fixed) return;
        for (const Moment& moment : moments) {
            optimizer_names.insert(name + moment.suffix);
            if (status.ok())
                status = load_tensor(store, *loaded.optimizer, name + moment.suffix, p, id, group, member, moment.arena);
        }
    });
    MILLRACE_TRY(check_names(loaded.model, model_names));
    if (!moments.empty()) MILLRACE_TRY(check_names(*loaded.optimizer, optimizer_names));
    return status;
}

}  // namespace

WeightCopies copy_weights(tape::Store& store, std::int64_t batches, const std::vector<Attachment>& attachments) {
    WeightCopies copies;
    copies.members.resize(static_cast<std::size_t>(store.members()));
    const std::vector<Moment> moments = moments_of(store);
    copies.counts.push_back(batches);
    for (int member = 0; member < store.members(); ++member) {
        io::MemberTensors& tensors = copies.members[static_cast<std::size_t>(member)];
        for_each_tensor(store, [&](const Parameter& p, ParameterId id, int group, const std::string& name) {
            copies.values.push_back(store.read_parameter(id, group, member));
            tensors.model.push_back(io::float_tensor(name, shape_of(p), copies.values.back()));
            if (const std::string counter = batches_name(name); p.fixed && !counter.empty())
                tensors.model.push_back(
                    {counter, io::ElementType::kI64, {}, reinterpret_cast<const std::byte*>(&copies.counts.back()), 8});
            if (p.fixed) return;
            for (const Moment& moment : moments) {
                copies.values.push_back(store.read_parameter(id, group, member, moment.arena));
                tensors.optimizer.push_back(io::float_tensor(name + moment.suffix, shape_of(p), copies.values.back()));
            }
        });
        for (const Attachment& attachment : attachments)
            tensors.model.push_back({attachment.name,
                                     io::ElementType::kU8,
                                     {static_cast<std::int64_t>(attachment.bytes.size())},
                                     reinterpret_cast<const std::byte*>(attachment.bytes.data()),
                                     attachment.bytes.size()});
    }
    return copies;
}

base::Status load_weights(tape::Store& store, const io::LoadedCheckpoint& checkpoint, bool with_optimizer,
                          const std::vector<Attachment>& attachments) {
    if (static_cast<int>(checkpoint.members.size()) != store.members())
        return base::Error{
            fmt::format("the checkpoint holds {} members, the recipe has {}", checkpoint.members.size(), store.members()),
            checkpoint.folder};
    for (int member = 0; member < store.members(); ++member)
        MILLRACE_TRY(
            load_member(store, checkpoint.members[static_cast<std::size_t>(member)], member, with_optimizer, attachments));
    store.refresh_copies();
    return base::ok();
}

void write_fixed(tape::Store& store, const std::string& name, int member, double value) {
    const std::vector<tape::Parameter>& all = store.parameters();
    const auto found = std::ranges::find_if(all, [&](const tape::Parameter& p) { return p.fixed && p.names.front() == name; });
    MILLRACE_ASSERT(found != all.end(), "no fixed parameter " + name);
    store.write_parameter(static_cast<tape::ParameterId>(found - all.begin()), 0, member,
                          std::vector<float>(static_cast<std::size_t>(found->count()), static_cast<float>(value)));
}

}  // namespace millrace::models
