"""Opens a journal or a database as Optuna does and prints what it finds: open_study.py FILE. Then asks for the next trial."""
import sys
import warnings

warnings.simplefilter("ignore")
import optuna  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)
path = sys.argv[1]
if path.endswith(".db"):
    # Debian's Optuna 3.1 knows older revisions only; the tables it reads are the same.
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}", skip_compatibility_check=True, skip_table_creation=True)
else:
    storage = optuna.storages.JournalStorage(optuna.storages.JournalFileStorage(path))
name = optuna.get_all_study_summaries(storage)[0].study_name
study = optuna.load_study(study_name=name, storage=storage)
print("study", study.study_name, "directions", [direction.name for direction in study.directions], "metrics",
      study.system_attrs["study:metric_names"])
for trial in study.trials:
    print(trial.number, trial.state.name, trial.value, trial.intermediate_values, trial.user_attrs)
print("best", study.best_trial.number, sorted(study.best_params.items()))
first = study.trials[0]
print("first", sorted(first.params.items()))
print("constraints", first.system_attrs["constraints"], "rung", first.system_attrs["completed_rung_0"], "took",
      (first.datetime_complete - first.datetime_start).total_seconds())
print("asked", study.ask().number)
