// Stands for `@grafana/assistant`, which only the query editor uses.

export const QueryWithAssistantButton = () => null;
