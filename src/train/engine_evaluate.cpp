#include <algorithm>

#include "comm/group.h"
#include "models/weights.h"
#include "train/engine.h"

namespace millrace::train {

using data::Part;

/// One pass over a part of the data: runs its batches and adds up what they leave.
struct Engine::Evaluation {
    /// What the host collects of one member.
    struct Member {
        bool wanted = true;
        std::unique_ptr<models::Scoring> scoring;  ///< null: the family has none
        std::unique_ptr<models::Scoring> domain;   ///< of the section alone, where there are several
        models::Confusion confusion;               ///< where classes are reported
        Score sums, section;                       ///< loss and accuracy before they are divided by the rows; of the section
        std::uint32_t rows = 0;                    ///< of the section
        std::vector<Score> domains;
    };

    Evaluation(Engine& of, Part which) : engine(of), part(which), pass(of.passes_[data::index_of(which)]) {}
    ~Evaluation() { engine.store_->write_states(before); }
    Evaluation(const Evaluation&) = delete;
    Evaluation& operator=(const Evaluation&) = delete;

    [[nodiscard]] bool reports_classes(const models::Outputs& outputs) const {
        return engine.class_reports_ && outputs.labels.present() && outputs.predicted.present();
    }
    /// What is read of a batch: Outputs::kept where a member is scored by them; behind them labels and predictions where classes
    /// are reported. Each of all members, or the same of all.
    [[nodiscard]] std::vector<tensor::View> views_of(const models::Outputs& outputs) const {
        std::vector<tensor::View> views;
        if (std::ranges::any_of(members, [](const Member& member) { return member.scoring != nullptr; })) views = outputs.kept;
        if (reports_classes(outputs)) views.insert(views.end(), {outputs.labels, outputs.predicted});
        for (tensor::View& view : views) view.k = view.stride_k == 0 ? 1 : engine.members();
        return views;
    }

    /// Runs the batch that begins at `position` once its `rows` rows are there; `number` counts batches of the pass.
    base::Status run(const Pass::Batch& batch, std::uint64_t number, std::int64_t position, std::int64_t rows) const {
        const data::StepsDone done = [&]() -> base::Result<std::uint64_t> {
            engine.backend_->synchronize();
            MILLRACE_TRY(engine.backend_->check());
            return number;
        };
        MILLRACE_TRY(engine.source_->await_rows({part, 0, position, rows, number}, done));
        std::vector<ops::MemberState> states = engine.store_->read_states();
        for (ops::MemberState& state : states) {
            state.eval_position = static_cast<std::uint32_t>(position);
            state.rows = state.correct = 0;
            state.loss = state.penalty = 0;
        }
        engine.store_->write_states(states);
        batch.program->launch();
        return base::ok();
    }

    /// What a batch that was run left, as numbers that ranks exchange: loss, rows and correct rows of each member, then the
    /// views.
    [[nodiscard]] std::vector<double> left_by(const Pass::Batch& batch) const {
        std::vector<double> left;
        for (const ops::MemberState& state : engine.store_->read_states())
            left.insert(left.end(), {state.loss, static_cast<double>(state.rows), static_cast<double>(state.correct)});
        for (const tensor::View& view : views_of(batch.outputs)) {
            const std::vector<double> values = batch.program->read(view);
            left.insert(left.end(), values.begin(), values.end());
        }
        return left;
    }

    /// `batch` is one like that which left it.
    void add(const Pass::Batch& batch, const std::vector<double>& left) {
        const std::vector<tensor::View> views = views_of(batch.outputs);
        const bool classes = reports_classes(batch.outputs);
        for (std::size_t k = 0; k < members.size(); ++k) {
            Member& member = members[k];
            for (Score* sum : {&member.sums, &member.section}) {
                sum->loss += left[3 * k];
                sum->accuracy += left[3 * k + 2];
            }
            member.rows += static_cast<std::uint32_t>(left[3 * k + 1]);
            std::vector<std::vector<double>> own;
            const double* at = left.data() + 3 * members.size();
            for (const tensor::View& view : views) {
                const std::int64_t each = view.count() / view.k;
                const double* first = at + (view.k == 1 ? 0 : static_cast<std::int64_t>(k) * each);
                own.emplace_back(first, first + each);
                at += view.count();
            }
            if (classes) {
                const std::vector<double> predicted = std::move(own.back()), labels = std::move(own.end()[-2]);
                own.resize(own.size() - 2);
                for (std::size_t row = 0; member.wanted && row < labels.size(); ++row)
                    member.confusion[{static_cast<std::int32_t>(labels[row]), static_cast<std::int32_t>(predicted[row])}] += 1;
            }
            if (member.scoring) member.scoring->add(own);
            if (member.scoring && member.domain) member.domain->add(own);
        }
    }

    /// `first` row and batch `number` of the pass begin the section.
    base::Status score_section(const Pass::Section& section, std::int64_t first, std::uint64_t number,
                               const std::function<bool()>& stopped) {
        for (std::size_t k = 0; k < members.size(); ++k) {
            members[k].section = {};
            members[k].rows = 0;
            if (members[k].wanted && !engine.domains_.empty())
                members[k].domain = engine.model_->scoring(part, static_cast<int>(k));
        }
        const auto batch_at = [&](std::int64_t i) -> const Pass::Batch& {
            return i < section.batches ? pass.whole : section.tail;
        };
        // Batch i is computed by rank i mod the ranks, and all ranks add all of them in their order.
        for (std::int64_t begin = 0; begin < section.count() && !stopped(); begin += engine.group_->size()) {
            const std::int64_t own = begin + engine.group_->rank(), size = engine.eval_batch_;
            std::vector<double> left;
            if (own < section.count()) {
                MILLRACE_TRY(run(batch_at(own), number + static_cast<std::uint64_t>(own), first + own * size,
                                 own < section.batches ? size : section.rows % size));
                left = left_by(batch_at(own));
                MILLRACE_TRY(engine.backend_->check());
            }
            MILLRACE_LET(all, engine.group_->all_lists(std::move(left)));
            for (std::int64_t i = begin; i < std::min(begin + engine.group_->size(), section.count()); ++i)
                add(batch_at(i), all[static_cast<std::size_t>(i - begin)]);
        }
        for (Member& member : members) {
            if (stopped()) break;
            MILLRACE_ASSERT(member.rows == static_cast<std::uint32_t>(section.rows), "an evaluation pass sees every row once");
            if (engine.domains_.empty()) continue;
            member.domains.push_back({member.section.loss / member.rows, member.section.accuracy / member.rows});
            if (member.domain) member.domains.back().more = member.domain->finish();
        }
        return base::ok();
    }

    Engine& engine;
    const Part part;
    const Pass& pass;
    const std::vector<ops::MemberState> before = engine.store_->read_states();  ///< written back at the end
    std::vector<Member> members;
};

base::Result<std::vector<Score>> Engine::evaluate(Part part, const std::atomic<int>* stop, const std::vector<bool>& wanted) {
    const auto stopped = [stop] { return stop != nullptr && stop->load(std::memory_order_relaxed) != 0; };
    const Pass& pass = passes_[data::index_of(part)];
    const std::int32_t rows = source_->samples(part);
    std::vector<Score> scores;
    if (pass.sections.empty() || rows == 0) return scores;
    Evaluation evaluation(*this, part);
    evaluation.members.resize(evaluation.before.size());
    for (std::size_t k = 0; k < evaluation.members.size(); ++k) {
        Evaluation::Member& member = evaluation.members[k];
        member.wanted = wanted.empty() || wanted[k];
        if (member.wanted) member.scoring = model_->scoring(part, static_cast<int>(k));
    }
    std::int64_t first = 0, number = 0;
    for (const Pass::Section& section : pass.sections) {
        MILLRACE_TRY(evaluation.score_section(section, first, static_cast<std::uint64_t>(number), stopped));
        first += section.rows;
        number += section.count();
    }
    if (stopped()) return scores;
    for (std::size_t k = 0; k < evaluation.members.size(); ++k) {
        Evaluation::Member& member = evaluation.members[k];
        Score& score = scores.emplace_back(Score{member.sums.loss / rows, member.sums.accuracy / rows});
        if (member.scoring) score.more = member.scoring->finish();
        score.domains = std::move(member.domains);
        for (const models::Figure& value : score.more.chosen)
            models::write_fixed(*store_, value.name, static_cast<int>(k), value.value);
        if (member.confusion.empty()) continue;
        const models::Outputs& outputs = (pass.whole.program ? pass.whole : pass.sections.front().tail).outputs;
        score.classes = models::class_report(std::move(member.confusion), outputs.prediction.view.cols);
        if (scores_macro_f1_) score.more.figures.push_back({"macro_f1", score.classes->macro_f1});
    }
    return scores;
}

base::Status Engine::read_outputs(Part part, std::int64_t samples, const TakeOutputs& take) {
    MILLRACE_ASSERT(domains_.empty() && samples <= source_->samples(part), "outputs of one whole");
    const Evaluation evaluation(*this, part);
    std::uint64_t number = 0;
    for (std::int64_t first = 0; first < samples; first += eval_batch_) {
        const std::int64_t rows = std::min<std::int64_t>(eval_batch_, source_->samples(part) - first);
        const Pass::Batch& batch = rows == eval_batch_ ? evaluation.pass.whole : evaluation.pass.sections.front().tail;
        MILLRACE_TRY(evaluation.run(batch, number++, first, rows));
        tensor::View prediction = batch.outputs.prediction.view;
        prediction.k = prediction.stride_k == 0 ? 1 : members();
        const std::vector<double> values = batch.program->read(prediction);
        MILLRACE_TRY(backend_->check());
        MILLRACE_TRY(take(first, rows, values));
    }
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
