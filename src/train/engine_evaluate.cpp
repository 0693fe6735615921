#include <algorithm>

#include "models/weights.h"
#include "train/engine.h"

namespace millrace::train {

using data::Part;

namespace {

/// A tensor of all members, read with one copy.
class EachMember {
public:
    EachMember(const tape::Program& program, tensor::View view, std::size_t members) {
        view.k = view.stride_k == 0 ? 1 : static_cast<std::int32_t>(members);
        values_ = program.read(view);
        each_ = values_.size() / static_cast<std::size_t>(view.k);
    }
    [[nodiscard]] std::vector<double> of(std::size_t member) const {
        const std::size_t begin = each_ == values_.size() ? 0 : member * each_;
        return {values_.begin() + static_cast<std::ptrdiff_t>(begin),
                values_.begin() + static_cast<std::ptrdiff_t>(begin + each_)};
    }

private:
    std::vector<double> values_;
    std::size_t each_;
};

}  // namespace

base::Status Engine::await_batch(Part part, std::uint64_t batch, std::int64_t first, std::int64_t rows) {
    return source_->await_rows({part, 0, first, rows, batch}, [&]() -> base::Result<std::uint64_t> {
        backend_->synchronize();
        MILLRACE_TRY(backend_->check());
        return batch;
    });
}

void Engine::score_batch(const Pass::Batch& batch, std::vector<Collected>& members) const {
    batch.program->launch();
    const models::Outputs& outputs = batch.outputs;
    if (std::ranges::any_of(members, [](const Collected& member) { return member.scoring != nullptr; })) {
        std::vector<EachMember> tensors;
        for (const tensor::View& view : outputs.kept) tensors.emplace_back(*batch.program, view, members.size());
        for (std::size_t k = 0; k < members.size(); ++k) {
            if (!members[k].scoring) continue;
            std::vector<std::vector<double>> own;
            for (const EachMember& tensor : tensors) own.push_back(tensor.of(k));
            members[k].scoring->add(own);
            if (members[k].domain) members[k].domain->add(own);
        }
    }
    if (!class_reports_ || !outputs.labels.present()) return;
    const EachMember scores(*batch.program, outputs.prediction.view, members.size()),
        labels(*batch.program, outputs.labels, members.size());
    for (std::size_t k = 0; k < members.size(); ++k) {
        if (!members[k].wanted) continue;
        const std::vector<double> own = scores.of(k);
        for (auto row = own.begin(); row != own.end(); row += outputs.prediction.view.cols) {
            const auto largest = std::max_element(row, row + outputs.prediction.view.cols);  // the first of equals, as the loss
            members[k].predictions.push_back(static_cast<std::int32_t>(largest - row));
        }
        for (const double label : labels.of(k)) members[k].labels.push_back(static_cast<std::int32_t>(label));
    }
}

base::Status Engine::score_section(Part part, std::size_t section, const std::function<bool()>& stopped,
                                   std::vector<Collected>& members) {
    const Pass& pass = passes_[data::index_of(part)];
    const Pass::Section& of = pass.sections[section];
    std::int64_t first = 0;
    std::uint64_t batch = 0;
    for (std::size_t before = 0; before < section; ++before) {
        first += pass.sections[before].rows;
        batch += static_cast<std::uint64_t>(pass.sections[before].batches + (pass.sections[before].tail.program ? 1 : 0));
    }
    std::vector<ops::MemberState> states = store_->read_states();
    for (ops::MemberState& state : states) {
        state.eval_position = static_cast<std::uint32_t>(first);
        state.rows = state.correct = 0;
        state.loss = state.penalty = 0;
    }
    store_->write_states(states);
    for (std::size_t k = 0; k < members.size() && !domains_.empty(); ++k)
        if (members[k].wanted) members[k].domain = model_->scoring(part, static_cast<int>(k));
    for (std::int64_t i = 0; i < of.batches && !stopped(); ++i, ++batch) {
        MILLRACE_TRY(await_batch(part, batch, first + i * eval_batch_, eval_batch_));
        score_batch(pass.whole, members);
    }
    if (of.tail.program && !stopped()) {
        MILLRACE_TRY(await_batch(part, batch, first + of.batches * eval_batch_, of.rows % eval_batch_));
        score_batch(of.tail, members);
    }
    states = store_->read_states();
    MILLRACE_TRY(backend_->check());
    for (std::size_t k = 0; k < states.size() && !stopped(); ++k) {
        const ops::MemberState& state = states[k];
        MILLRACE_ASSERT(state.rows == static_cast<std::uint32_t>(of.rows), "an evaluation pass sees every row once");
        members[k].sums.loss += state.loss;
        members[k].sums.accuracy += state.correct;
        if (domains_.empty()) continue;
        members[k].domains.push_back({state.loss / state.rows, static_cast<double>(state.correct) / state.rows});
        if (members[k].domain) members[k].domains.back().more = members[k].domain->finish();
    }
    return base::ok();
}

base::Result<std::vector<Score>> Engine::evaluate(Part part, const std::atomic<int>* stop, const std::vector<bool>& wanted) {
    const auto stopped = [stop] { return stop != nullptr && stop->load(std::memory_order_relaxed) != 0; };
    const Pass& pass = passes_[data::index_of(part)];
    const std::int32_t rows = source_->samples(part);
    if (pass.sections.empty() || rows == 0) return std::vector<Score>{};
    const std::vector<ops::MemberState> before = store_->read_states();
    std::vector<Collected> collected(before.size());
    for (std::size_t k = 0; k < collected.size(); ++k) {
        collected[k].wanted = wanted.empty() || wanted[k];
        if (collected[k].wanted) collected[k].scoring = model_->scoring(part, static_cast<int>(k));
    }
    for (std::size_t section = 0; section < pass.sections.size(); ++section)
        MILLRACE_TRY(score_section(part, section, stopped, collected));
    store_->write_states(before);
    std::vector<Score> scores;
    if (stopped()) return scores;
    for (std::size_t k = 0; k < collected.size(); ++k) {
        Collected& member = collected[k];
        scores.push_back({member.sums.loss / rows, member.sums.accuracy / rows});
        if (member.scoring) scores.back().more = member.scoring->finish();
        scores.back().domains = std::move(member.domains);
        for (const models::Figure& value : scores.back().more.chosen)
            models::write_fixed(*store_, value.name, static_cast<int>(k), value.value);
        if (!member.labels.empty()) {
            const models::Outputs& outputs = (pass.whole.program ? pass.whole : pass.sections.front().tail).outputs;
            scores.back().classes = models::class_report(member.labels, member.predictions, outputs.prediction.view.cols);
        }
    }
    return scores;
}

base::Result<std::vector<std::vector<double>>> Engine::run_sample(Part part, std::int32_t position, const Build& build) {
    MILLRACE_ASSERT(position >= 0 && position < source_->samples(part), "no such sample");
    tape::BuildOptions options;
    options.training = false;
    tape::Builder builder(*store_, options);
    const models::Outputs outputs = build(builder, *source_, part);
    builder.close_section();
    tape::Arena arena(*backend_);
    tape::Program program("sample", *store_, std::move(builder), arena);
    MILLRACE_TRY(arena.allocate());
    MILLRACE_TRY(program.prepare());
    const std::vector<ops::MemberState> before = store_->read_states();
    std::vector<ops::MemberState> states = before;
    for (ops::MemberState& state : states) state.eval_position = static_cast<std::uint32_t>(position);
    store_->write_states(states);
    MILLRACE_TRY(source_->await_rows({part, 0, position, 1, 0}, [] { return base::Result<std::uint64_t>(0); }));
    program.run();
    std::vector<std::vector<double>> kept;
    for (const tensor::View& view : outputs.kept) kept.push_back(program.read(view));
    MILLRACE_TRY(backend_->check());
    store_->write_states(before);
    return kept;
}

}  // namespace millrace::train
