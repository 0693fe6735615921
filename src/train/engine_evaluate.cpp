#include <algorithm>
#include <cstring>

#include "comm/group.h"
#include "models/weights.h"
#include "train/engine.h"

namespace millrace::train {

using data::Part;

/// What a batch added to the sums of one member.
struct BatchSums {
    double loss = 0;
    std::uint32_t rows = 0, correct = 0;
};

struct Engine::BatchScores {
    std::vector<BatchSums> sums;  ///< by member
    /// Outputs::kept, each of all members; empty where no member is scored by them. Behind them labels and predictions where the
    /// engine reports classes.
    std::vector<std::vector<double>> kept;

    [[nodiscard]] std::string bytes() const {
        std::string out(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(BatchSums));
        for (const std::vector<double>& tensor : kept) {
            const std::uint64_t count = tensor.size();
            out.append(reinterpret_cast<const char*>(&count), sizeof count);
            out.append(reinterpret_cast<const char*>(tensor.data()), count * sizeof(double));
        }
        return out;
    }
    static BatchScores from(const std::string& bytes, std::size_t members) {
        BatchScores scores;
        scores.sums.resize(members);
        std::size_t at = members * sizeof(BatchSums);
        std::memcpy(scores.sums.data(), bytes.data(), at);
        while (at < bytes.size()) {
            std::uint64_t count = 0;
            std::memcpy(&count, bytes.data() + at, sizeof count);
            std::vector<double>& tensor = scores.kept.emplace_back(count);
            std::memcpy(tensor.data(), bytes.data() + at + sizeof count, count * sizeof(double));
            at += sizeof count + count * sizeof(double);
        }
        return scores;
    }
};

namespace {

/// A tensor of all members, read with one copy: of each as many values, or the same of all.
std::vector<double> read_all(const tape::Program& program, tensor::View view, std::size_t members) {
    view.k = view.stride_k == 0 ? 1 : static_cast<std::int32_t>(members);
    return program.read(view);
}
std::vector<double> of_member(const std::vector<double>& all, std::int64_t each, std::size_t member) {
    const auto count = static_cast<std::size_t>(each), begin = all.size() == count ? 0 : member * count;
    return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}
std::int64_t of_one(tensor::View view) {
    view.k = 1;
    return view.count();
}

}  // namespace

base::Status Engine::await_batch(Part part, std::uint64_t batch, std::int64_t first, std::int64_t rows) {
    return source_->await_rows({part, 0, first, rows, batch}, [&]() -> base::Result<std::uint64_t> {
        backend_->synchronize();
        MILLRACE_TRY(backend_->check());
        return batch;
    });
}

Engine::BatchScores Engine::run_batch(const Pass::Batch& batch, std::int64_t position, std::size_t members,
                                      bool wants_kept) const {
    std::vector<ops::MemberState> states = store_->read_states();
    for (ops::MemberState& state : states) {
        state.eval_position = static_cast<std::uint32_t>(position);
        state.rows = state.correct = 0;
        state.loss = state.penalty = 0;
    }
    store_->write_states(states);
    batch.program->launch();
    BatchScores scores;
    for (const ops::MemberState& state : store_->read_states()) scores.sums.push_back({state.loss, state.rows, state.correct});
    if (wants_kept)
        for (const tensor::View& view : batch.outputs.kept) scores.kept.push_back(read_all(*batch.program, view, members));
    if (reports_classes(batch.outputs))
        for (const tensor::View& view : {batch.outputs.labels, batch.outputs.predicted})
            scores.kept.push_back(read_all(*batch.program, view, members));
    return scores;
}

void Engine::add_batch(const Pass::Batch& batch, const BatchScores& scores, std::vector<Collected>& members) const {
    for (std::size_t k = 0; k < members.size(); ++k) {
        Collected& member = members[k];
        for (Score* sum : {&member.sums, &member.section}) {
            sum->loss += scores.sums[k].loss;
            sum->accuracy += scores.sums[k].correct;
        }
        member.rows += scores.sums[k].rows;
        if (member.wanted && reports_classes(batch.outputs)) {
            const std::int64_t rows = of_one(batch.outputs.labels);
            const auto labels = of_member(scores.kept.end()[-2], rows, k), predicted = of_member(scores.kept.back(), rows, k);
            for (std::size_t row = 0; row < labels.size(); ++row)
                member.confusion[{static_cast<std::int32_t>(labels[row]), static_cast<std::int32_t>(predicted[row])}] += 1;
        }
        if (!member.scoring) continue;
        std::vector<std::vector<double>> own;
        for (std::size_t i = 0; i < batch.outputs.kept.size(); ++i)
            own.push_back(of_member(scores.kept[i], of_one(batch.outputs.kept[i]), k));
        member.scoring->add(own);
        if (member.domain) member.domain->add(own);
    }
}

base::Result<std::vector<Engine::BatchScores>> Engine::exchange(const std::optional<BatchScores>& own) const {
    std::vector<BatchScores> all;
    if (group_ == nullptr) {
        if (own) all.push_back(*own);
        return all;
    }
    MILLRACE_LET(texts, comm::Group::all_texts(*group_, own ? own->bytes() : ""));
    for (const std::string& text : texts)
        if (!text.empty()) all.push_back(BatchScores::from(text, static_cast<std::size_t>(members())));
    return all;
}

base::Status Engine::score_section(Part part, std::size_t section, const std::function<bool()>& stopped,
                                   std::vector<Collected>& members) {
    const Pass& pass = passes_[data::index_of(part)];
    const Pass::Section& of = pass.sections[section];
    std::int64_t first = 0;
    std::uint64_t number = 0;
    for (std::size_t before = 0; before < section; ++before) {
        first += pass.sections[before].rows;
        number += static_cast<std::uint64_t>(pass.sections[before].batches + (pass.sections[before].tail.program ? 1 : 0));
    }
    for (std::size_t k = 0; k < members.size(); ++k) {
        members[k].section = {};
        members[k].rows = 0;
        if (members[k].wanted && !domains_.empty()) members[k].domain = model_->scoring(part, static_cast<int>(k));
    }
    const bool wants_kept = std::ranges::any_of(members, [](const Collected& member) { return member.scoring != nullptr; });
    const std::int64_t batches = of.batches + (of.tail.program ? 1 : 0);
    const int ranks = group_ == nullptr ? 1 : group_->size(), rank = group_ == nullptr ? 0 : group_->rank();
    // Batch i is computed by rank i mod the ranks, and all ranks add all of them in their order.
    for (std::int64_t begin = 0; begin < batches && !stopped(); begin += ranks) {
        const std::int64_t own = begin + rank;
        std::optional<BatchScores> scores;
        if (own < batches) {
            const Pass::Batch& batch = own < of.batches ? pass.whole : of.tail;
            const std::int64_t position = first + own * eval_batch_;
            MILLRACE_TRY(await_batch(part, number + static_cast<std::uint64_t>(own), position,
                                     own < of.batches ? eval_batch_ : of.rows % eval_batch_));
            scores = run_batch(batch, position, members.size(), wants_kept);
            MILLRACE_TRY(backend_->check());
        }
        MILLRACE_LET(all, exchange(scores));
        for (std::size_t i = 0; i < all.size(); ++i)
            add_batch(begin + static_cast<std::int64_t>(i) < of.batches ? pass.whole : of.tail, all[i], members);
    }
    for (std::size_t k = 0; k < members.size() && !stopped(); ++k) {
        Collected& member = members[k];
        MILLRACE_ASSERT(member.rows == static_cast<std::uint32_t>(of.rows), "an evaluation pass sees every row once");
        if (domains_.empty()) continue;
        member.domains.push_back({member.section.loss / member.rows, member.section.accuracy / member.rows});
        if (member.domain) member.domains.back().more = member.domain->finish();
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
        if (!member.confusion.empty()) {
            const models::Outputs& outputs = (pass.whole.program ? pass.whole : pass.sections.front().tail).outputs;
            scores.back().classes = models::class_report(std::move(member.confusion), outputs.prediction.view.cols);
            if (scores_macro_f1_) scores.back().more.figures.push_back({"macro_f1", scores.back().classes->macro_f1});
        }
    }
    return scores;
}

base::Status Engine::read_outputs(Part part, std::int64_t samples, const TakeOutputs& take) {
    MILLRACE_ASSERT(domains_.empty() && samples <= source_->samples(part), "outputs of one whole");
    const Pass& pass = passes_[data::index_of(part)];
    const std::vector<ops::MemberState> before = store_->read_states();
    std::uint64_t number = 0;
    for (std::int64_t first = 0; first < samples; first += eval_batch_) {
        const std::int64_t rows = std::min<std::int64_t>(eval_batch_, source_->samples(part) - first);
        const Pass::Batch& batch = rows == eval_batch_ ? pass.whole : pass.sections.front().tail;
        MILLRACE_TRY(await_batch(part, number++, first, rows));
        (void)run_batch(batch, first, before.size(), false);
        const std::vector<double> values = read_all(*batch.program, batch.outputs.prediction.view, before.size());
        MILLRACE_TRY(backend_->check());
        MILLRACE_TRY(take(first, rows, values));
    }
    store_->write_states(before);
    return backend_->check();
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
