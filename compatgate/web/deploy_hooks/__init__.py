"""Answer deploy tools in their own forms: Flagger, Argo Rollouts, driver rollouts, any other."""
